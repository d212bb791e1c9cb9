# Reference values of R flexmix and R glm, for the agreement tests.
#
#   python simulate.py TABLES
#   Rscript make_values.R DIRECTORY TABLES values.json
#
# DIRECTORY holds classic_mixtures/{tonedata,NPreg,betablocker,seizure,patent,NOdata}.csv, TABLES the simulated tables.
# Packages: flexmix, nnet, jsonlite, MASS, numDeriv.
# Every fit starts from stored labels, so the library can be started from the very same posteriors. A gate reads the
# columns of the experts unless a case names its own (gate_columns). README.md explains the fields.

suppressPackageStartupMessages({
  library(flexmix)
  library(nnet)
  library(jsonlite)
})

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) != 3) stop("usage: Rscript make_values.R DIRECTORY TABLES values.json")
classic <- function(name) read.csv(file.path(arguments[1], "classic_mixtures", paste0(name, ".csv")))
simulated_table <- function(name) read.csv(file.path(arguments[2], paste0(name, ".csv")))

CONTROL <- list(minprior = 0, tolerance = 1e-12, iter.max = 5000)

# ---------------------------------------------------------------- the gate, solved to machine precision

# FLXPmultinom stops nnet's BFGS at 100 iterations or a relative gain of 1e-8, and offers no control. The same
# criterion from the same start (zero), carried on until BFGS itself cannot gain any more.
tight_gate <- function(formula) {
  gate <- FLXPmultinom(formula)
  tight <- list(maxit = 10000, reltol = 1e-16, abstol = 0)
  gate@fit <- function(x, y, w, ...) {
    r <- ncol(x)
    mask <- c(rep(0, r + 1), rep(c(0, rep(1, r)), ncol(y) - 1))
    weights <- if (missing(w) || is.null(w)) rep(1, nrow(y)) else w
    net <- list(x, y, weights, mask = mask, size = 0, skip = TRUE, softmax = TRUE, rang = 0, trace = FALSE)
    do.call(nnet.default, c(net, tight))$fitted.values
  }
  environment(gate@fit)$nnet.default <- getFromNamespace("nnet.default", "nnet")
  gate@refit <- function(x, y, w, ...) {
    if (missing(w) || is.null(w)) w <- rep(1, nrow(y))
    rownames(y) <- rownames(x) <- NULL
    call <- list(y ~ 0 + x, weights = w, data = list(y = y, x = x, w = w), Hess = TRUE, trace = FALSE)
    fit <- do.call(multinom, c(call, tight))
    fit$coefnames <- fit$vcoefnames <- colnames(x)
    fit
  }
  gate
}

# ---------------------------------------------------------------- gamma experts at the maximum: log link, ML shape

WARM_GLM <- glm.control(epsilon = 1e-10, maxit = 50)  # inside an EM, from the last coefficients
EXACT_GLM <- glm.control(epsilon = 1e-300, maxit = 50)  # alone: 50 iterations, far more than rounding leaves room for
exact_glm <- function(...) suppressWarnings(glm(..., control = EXACT_GLM))

# The root of log(shape) - digamma(shape) = half, half the (weighted) mean deviance; 1/(2 s) < log s - digamma s < 1/s.
ml_shape <- function(half) {
  excess <- function(s) log(s) - digamma(s) - half
  shape <- uniroot(excess, c(0.5, 1) / half, tol = 1e-10 / half)$root
  for (step in 1:3) shape <- shape - excess(shape) / (1 / shape - trigamma(shape))
  shape
}

# flexmix's gamma family has the inverse link and no ML shape; this is flexmix's EM with another M-step and density.
gamma_log <- function() {
  model <- FLXMRglm(family = "Gamma")
  define <- function(para) {
    predict <- function(x, ...) exp(x %*% para$coef)
    logLik <- function(x, y, ...) {
      shape <- exp(para$log_shape)
      dgamma(y, shape = shape, scale = predict(x) / shape, log = TRUE)
    }
    parameters <- list(coef = para$coef, log_shape = para$log_shape)
    new("FLXcomponent", parameters = parameters, predict = predict, logLik = logLik, df = para$df)
  }
  model@defineComponent <- define
  model@fit <- function(x, y, w, component) {
    fit <- glm.fit(x, y, weights = w, family = Gamma(link = "log"), start = component$coef, control = WARM_GLM)
    define(list(coef = coef(fit), log_shape = log(ml_shape(fit$deviance / (2 * sum(w)))), df = ncol(x) + 1))
  }
  model
}

# The same maximum by an EM without flexmix, for a constant gate: glm for the coefficients, ml_shape for the shapes.
em_gamma <- function(data, formula, labels, k) {
  y <- model.response(model.frame(formula, data))
  tau <- ifelse(outer(labels, seq_len(k), "=="), 0.9, 0.1)
  tau <- tau / rowSums(tau)
  before <- Inf
  fits <- vector("list", k)
  for (iteration in 1:20000) {
    prior <- colMeans(tau)
    fits <- lapply(seq_len(k), function(j) {
      data$tau_j <- tau[, j]
      last <- if (!is.null(fits[[j]])) coef(fits[[j]])
      glm(formula, family = Gamma(link = "log"), data = data, weights = tau_j, start = last, control = WARM_GLM)
    })
    shape <- mapply(function(fit, j) ml_shape(deviance(fit) / (2 * sum(tau[, j]))), fits, seq_len(k))
    density <- mapply(function(fit, s) dgamma(y, shape = s, scale = fitted(fit) / s, log = TRUE), fits, shape)
    joint <- sweep(density, 2, log(prior), "+")
    top <- apply(joint, 1, max)
    total <- top + log(rowSums(exp(joint - top)))
    tau <- exp(joint - total)
    coefficients <- unname(do.call(rbind, lapply(fits, coef)))
    now <- c(coefficients, log(shape), prior)
    if (max(abs(now - before)) < 1e-12) break
    before <- now
  }
  list(independent = list(
    method = "EM by glm(family = Gamma(link = log), weights) and uniroot, without flexmix",
    iterations = iteration, loglik = sum(total), coefficients = coefficients, shape = shape, prior = prior
  ))
}

# ---------------------------------------------------------------- one fit and what is kept of it

components <- function(fit) {
  coefficients <- t(sapply(fit@components, function(component) component[[1]]@parameters$coef))
  sigma <- unlist(lapply(fit@components, function(component) component[[1]]@parameters$sigma))
  log_shape <- unlist(lapply(fit@components, function(component) component[[1]]@parameters$log_shape))
  shape <- if (!is.null(log_shape)) unname(exp(log_shape))
  gate <- if (length(fit@concomitant@coef) && is(fit@concomitant, "FLXPmultinom")) t(unname(fit@concomitant@coef))
  experts <- list(coefficients = unname(coefficients), sigma = unname(sigma), shape = shape)
  c(experts, list(prior = unname(fit@prior), gate = gate))
}

stopped <- function(fit) list(iterations = fit@iter, converged = fit@converged, loglik = fit@logLik)

without_null <- function(values) {
  kept <- values[!vapply(values, is.null, logical(1))]
  lapply(kept, function(value) if (is.list(value)) without_null(value) else value)
}

# By Richardson's extrapolation, with steps of 0.1, 0.05, 0.025 and 0.0125 of `scale` about theta.
richardson_errors <- function(loglik, theta, scale) {
  about <- function(u) as.numeric(loglik(theta + scale * u))
  hessian <- numDeriv::hessian(about, 0 * theta, method.args = list(eps = 0.1, zero.tol = 1e-8, r = 4, v = 2))
  scale * sqrt(diag(solve(-hessian)))
}

# Maximum of the likelihood itself, by BFGS from flexmix's fit, and standard errors by its numerical Hessian. That
# Hessian takes steps of 1e-3, too long where a gamma shape is large: `richardson` takes steps in standard errors.
maximum <- function(fit, richardson = FALSE) {
  refitted <- refit(fit, optim_control = list(reltol = 1e-16, maxit = 2000))
  theta <- refitted@coef
  se <- sqrt(diag(refitted@vcov))
  if (richardson) se <- richardson_errors(flexmix:::FLXlogLikfun(fit), theta, se)
  part <- function(values, pattern, rows) {
    found <- grepl(pattern, names(theta))
    if (any(found)) matrix(unname(values[found]), nrow = rows, byrow = TRUE)
  }
  split <- function(values) list(
    coefficients = part(values, "_coef\\.", fit@k),
    log_sigma = as.vector(part(values, "log\\(sigma\\)", fit@k)),
    log_shape = as.vector(part(values, "log_shape", fit@k)),
    gate = part(values, "^concomitant", fit@k - 1)
  )
  loglik <- flexmix:::FLXlogLikfun(fit)(theta)
  list(maximum = c(list(loglik = as.numeric(loglik)), split(theta)), standard_errors = split(se))
}

fit_case <- function(data, formula, k, labels, family, gate = NULL, offset = NULL, n_groups = NULL, about) {
  run <- function(start, control, concomitant) {
    model <- if (family == "gamma") gamma_log() else FLXMRglm(family = family, offset = offset)
    call <- list(formula, data = data, k = k, cluster = start, model = model, control = control)
    do.call(flexmix, c(call, if (!is.null(concomitant)) list(concomitant = concomitant)))
  }
  concomitant <- if (!is.null(gate)) tight_gate(gate)
  fit <- run(labels, CONTROL, concomitant)
  # The tolerance bounds the gain, not the distance left: as many iterations again, at least 100, square that distance.
  polish <- max(100, min(fit@iter, 3000))
  control <- list(minprior = 0, tolerance = 0, iter.max = polish)
  polished <- run(posterior(fit), control, concomitant)
  values <- list(
    formula = paste(deparse(formula), collapse = " "), family = family, n_components = k,
    columns = names(polished@components[[1]][[1]]@parameters$coef),
    gate_formula = if (!is.null(gate)) paste(deparse(gate), collapse = " "),
    loglik = polished@logLik, df = polished@df, n_rows = nrow(data), n_groups = n_groups,
    aic = AIC(polished), bic = BIC(polished),
    at_tolerance = stopped(fit), polish_iterations = polish
  )
  top <- tryCatch(maximum(polished, richardson = family == "gamma"), error = function(e) list())
  values <- c(about, values, components(polished), top)
  if (!is.null(gate)) {
    plain <- run(labels, modifyList(CONTROL, list(iter.max = 500)), FLXPmultinom(gate))
    values$default_gate <- c(stopped(plain), components(plain))
  }
  without_null(values)
}

start_at <- function(labels) list(start = list(labels = labels - 1L))
log_choose <- function(successes, size) list(log_binomial_coefficients = sum(lchoose(size, successes)))

# ---------------------------------------------------------------- the cases

cases <- list()

tone <- classic("tonedata")
nearer <- ifelse(abs(tone$tuned - tone$stretchratio) < abs(tone$tuned - 2), 1L, 2L)
cases$tonedata <- fit_case(tone, tuned ~ stretchratio, 2, nearer, "gaussian",
  about = c(data = "tonedata", start_at(nearer)))

np <- classic("NPreg")
about_np <- c(data = "NPreg", start_at(np$class))
cases$npreg_gaussian <- fit_case(np, yn ~ x + I(x^2), 2, np$class, "gaussian", about = about_np)
cases$npreg_gaussian_grouped <- fit_case(np, yn ~ x + I(x^2) | id2, 2, np$class, "gaussian",
  n_groups = length(unique(np$id2)), about = c(about_np, groups = "id2"))
cases$npreg_gaussian_gate <- fit_case(np, yn ~ x + I(x^2), 2, np$class, "gaussian", gate = ~ x + I(x^2),
  about = about_np)
cases$npreg_poisson <- fit_case(np, yp ~ x, 2, np$class, "poisson", about = about_np)
cases$npreg_poisson_grouped <- fit_case(np, yp ~ x | id1, 2, np$class, "poisson",
  n_groups = length(unique(np$id1)), about = c(about_np, groups = "id1"))
# Mixtures of 0/1 regressions are identified by the groups only.
cases$npreg_binomial_grouped <- fit_case(np, cbind(yb, 1 - yb) ~ x | id2, 2, np$class, "binomial",
  n_groups = length(unique(np$id2)), about = c(about_np, groups = "id2", log_choose(np$yb, 1)))

beta <- classic("betablocker")
rate <- tapply(beta$Deaths, beta$Center, sum) / tapply(beta$Total, beta$Center, sum)
third <- as.integer(cut(rank(rate), 3))[match(beta$Center, as.integer(names(rate)))]
cases$betablocker <- fit_case(beta, cbind(Deaths, Total - Deaths) ~ Treatment | Center, 3, third, "binomial",
  n_groups = length(rate), about = c(data = "betablocker", groups = "Center", start_at(third),
    log_choose(beta$Deaths, beta$Total)))

seizure <- classic("seizure")
above <- residuals(glm(Seizures ~ Treatment * log(Day), family = poisson, data = seizure, offset = log(Hours)))
often <- ifelse(above > 0, 1L, 2L)
cases$seizure <- fit_case(seizure, Seizures ~ Treatment * log(Day), 2, often, "poisson", offset = log(seizure$Hours),
  about = c(data = "seizure", exposure = "Hours", start_at(often)))

patent <- classic("patent")
surplus <- residuals(glm(Patents ~ lgRD, family = poisson, data = patent), type = "pearson")
tercile <- as.integer(cut(rank(surplus, ties.method = "first"), 3))
cases$patent_gate <- fit_case(patent, Patents ~ lgRD, 3, tercile, "poisson", gate = ~lgRD,
  about = c(data = "patent", start_at(tercile)))
# The model of flexmix's vignette: R&D per sales decides on the component, R&D on the number of patents.
cases$patent_concomitant <- fit_case(patent, Patents ~ lgRD, 3, tercile, "poisson", gate = ~RDS,
  about = c(data = "patent", gate_columns = list(list("RDS")), start_at(tercile)))

simulated <- simulated_table("simulated")
start <- as.integer(simulated$start) + 1L
about_simulated <- list(data = "simulated")
gate <- ~ x1 + x2 + x3 + x4 + x5
cases$simulated_gaussian <- fit_case(simulated, gaussian ~ x1 + x2 + x3 + x4 + x5, 3, start, "gaussian", gate = gate,
  about = about_simulated)
cases$simulated_poisson <- fit_case(simulated, poisson ~ x1 + x2 + x3 + x4 + x5, 3, start, "poisson", gate = gate,
  about = about_simulated)
cases$simulated_binomial <- fit_case(simulated, cbind(successes, failures) ~ x1 + x2 + x3 + x4 + x5, 3, start,
  "binomial", gate = gate,
  about = c(about_simulated, log_choose(simulated$successes, simulated$successes + simulated$failures)))

# ---------------------------------------------------------------- binomial counts and gamma experts

half <- ifelse(rate > median(rate), 2L, 1L)[match(beta$Center, as.integer(names(rate)))]
cases$betablocker_2 <- fit_case(beta, cbind(Deaths, Total - Deaths) ~ Treatment | Center, 2, half, "binomial",
  n_groups = length(rate), about = c(data = "betablocker", groups = "Center", start_at(half),
    log_choose(beta$Deaths, beta$Total)))

small <- simulated_table("small")
gated <- simulated_table("small_gated")
binomial_small <- function(data, name, gate = NULL) {
  about <- c(data = name, log_choose(data$successes, data$successes + data$failures))
  fit_case(data, cbind(successes, failures) ~ x1 + x2, 2, data$start + 1L, "binomial", gate = gate, about = about)
}
cases$small_binomial <- binomial_small(small, "small")
cases$small_binomial_gate <- binomial_small(gated, "small_gated", ~ x1 + x2)

DRIVER <- list(link = "log", method = "flexmix EM, M-step by glm.fit(family = Gamma(link = log)) and ML shape")
cases$small_gamma <- c(
  fit_case(small, gamma ~ x1 + x2, 2, small$start + 1L, "gamma", about = c(data = "small", DRIVER)),
  em_gamma(small, gamma ~ x1 + x2, small$start + 1L, 2)
)
cases$small_gamma_gate <- fit_case(gated, gamma ~ x1 + x2, 2, gated$start + 1L, "gamma", gate = ~ x1 + x2,
  about = c(data = "small_gated", DRIVER))
oxide <- classic("NOdata")
branch <- ifelse(residuals(lm(Equivalence ~ NO, data = oxide)) > 0, 2L, 1L)
cases$nodata_gamma <- c(
  fit_case(oxide, Equivalence ~ NO, 2, branch, "gamma", about = c(data = "NOdata", start_at(branch), DRIVER)),
  em_gamma(oxide, Equivalence ~ NO, branch, 2)
)

# ---------------------------------------------------------------- one regression, no mixture

one_row <- function(v) matrix(unname(v), nrow = 1)

glm_gamma <- function(data, formula, name) {
  fit <- exact_glm(formula, family = Gamma(link = "log"), data = data)
  shape <- MASS::gamma.shape(fit, it.lim = 100, eps.max = 1e-11)
  stopifnot(abs(shape$alpha / ml_shape(deviance(fit) / (2 * nrow(data))) - 1) < 1e-10)
  x <- model.matrix(fit)
  observed <- shape$alpha * crossprod(x, fit$y / fitted(fit) * x)
  errors <- function(se) {
    list(coefficients = one_row(se), shape = I(shape$SE), log_shape = I(shape$SE / shape$alpha))
  }
  loglik <- sum(dgamma(fit$y, shape = shape$alpha, scale = fitted(fit) / shape$alpha, log = TRUE))
  list(
    data = name, formula = paste(deparse(formula), collapse = " "), family = "gamma", link = "log",
    method = "glm, MASS::gamma.shape", columns = names(coef(fit)), n_rows = nrow(data), df = ncol(x) + 1,
    loglik = loglik, aic = -2 * loglik + 2 * (ncol(x) + 1),
    coefficients = one_row(coef(fit)), shape = I(shape$alpha), deviance = deviance(fit),
    standard_errors = errors(summary(fit, dispersion = 1 / shape$alpha)$coefficients[, 2]),
    standard_errors_observed = errors(sqrt(diag(solve(observed))))
  )
}

glm_binomial <- function(data, formula, name, successes, size) {
  fit <- exact_glm(formula, family = binomial, data = data)
  c(
    list(
      data = name, formula = paste(deparse(formula), collapse = " "), family = "binomial", link = "logit",
      method = "glm", columns = names(coef(fit)), n_rows = nrow(data), df = length(coef(fit)),
      loglik = as.numeric(logLik(fit)), aic = AIC(fit), coefficients = one_row(coef(fit)), deviance = deviance(fit),
      standard_errors = list(coefficients = one_row(summary(fit)$coefficients[, 2]))
    ),
    log_choose(successes, size)
  )
}

single <- simulated_table("single")
regressions <- list(
  single_gamma = glm_gamma(single, gamma ~ x1 + x2, "single"),
  nodata_gamma = glm_gamma(oxide, NO ~ Equivalence + I(Equivalence^2), "NOdata"),
  small_gamma = glm_gamma(small, gamma ~ x1 + x2, "small"),
  betablocker = glm_binomial(beta, cbind(Deaths, Total - Deaths) ~ Treatment, "betablocker", beta$Deaths, beta$Total),
  small_binomial = glm_binomial(small, cbind(successes, failures) ~ x1 + x2, "small", small$successes,
    small$successes + small$failures)
)

# ---------------------------------------------------------------- flexmix's own gamma family

# Inverse link and the shape sum(w) / deviance. A design that gives every cell of the table a mean of its own makes the
# link immaterial: `coefficients` are flexmix's, `log_coefficients` the same means under the log link.
checksums <- function(v) c(sum(v), sum(v^2), sum(seq_along(v) / length(v) * v))

to_log_link <- function(coefficients) {  # of an intercept and at most one 0/1 column
  cells <- log(1 / t(apply(coefficients, 1, cumsum)))
  if (ncol(coefficients) == 1) cells <- t(cells)
  cells - cbind(0, cells[, -ncol(cells), drop = FALSE])
}

gamma_parameters <- function(fit) {
  coefficients <- do.call(rbind, lapply(fit@components, function(component) component[[1]]@parameters$coef))
  shape <- vapply(fit@components, function(component) component[[1]]@parameters$shape, 0)
  list(coefficients = unname(coefficients), log_coefficients = unname(to_log_link(coefficients)), shape = unname(shape))
}

flexmix_gamma <- function(data, formula, name, k = 2) {
  labels <- data$start + 1L
  run <- function(start, control) {
    flexmix(formula, data = data, k = k, cluster = start, model = FLXMRglm(family = "Gamma"), control = control)
  }
  posteriors <- function(fit) {
    tau <- posterior(fit)
    list(posterior_checksums = unname(t(apply(tau, 2, checksums))), posterior_head = unname(tau[1:5, ]))
  }
  fit <- run(labels, CONTROL)
  polish <- max(100, min(fit@iter, 3000))
  polished <- run(posterior(fit), list(minprior = 0, tolerance = 0, iter.max = polish))
  # One M-step from the start, then the log-likelihood and the posteriors of the parameters it gives.
  first <- run(labels, list(minprior = 0, tolerance = 0, iter.max = 1))
  tau <- ifelse(outer(labels, seq_len(k), "=="), 0.9, 0.1)
  tau <- tau / rowSums(tau)
  log_glm <- lapply(seq_len(k), function(j) {
    do.call(exact_glm, list(formula, family = Gamma(link = "log"), data = data, weights = tau[, j]))
  })
  first_step <- c(list(loglik = first@logLik, prior = unname(colMeans(tau))), gamma_parameters(first),
    list(
      ml_log_coefficients = unname(do.call(rbind, lapply(log_glm, coef))),
      ml_shape = mapply(function(g, j) ml_shape(deviance(g) / (2 * sum(tau[, j]))), log_glm, seq_len(k))
    ),
    posteriors(first))
  # BFGS on the likelihood of the same model: here the shapes are the ML ones.
  top <- refit(polished, optim_control = list(reltol = 1e-16, maxit = 2000))@coef
  coefficients <- matrix(top[grepl("_coef", names(top))], nrow = k, byrow = TRUE)
  best <- list(
    loglik = as.numeric(flexmix:::FLXlogLikfun(polished)(top)), coefficients = coefficients,
    log_coefficients = unname(to_log_link(coefficients)), shape = unname(top[grepl("shape", names(top))]),
    gate = matrix(unname(top[grepl("^concomitant", names(top))]), nrow = k - 1)
  )
  c(
    list(
      data = name, formula = paste(deparse(formula), collapse = " "), family = "gamma", link = "inverse",
      method = "FLXMRglm(family = Gamma), shape = sum(w) / deviance", n_components = k,
      columns = I(names(polished@components[[1]][[1]]@parameters$coef)), n_rows = nrow(data), df = polished@df,
      loglik = polished@logLik, at_tolerance = stopped(fit), polish_iterations = polish
    ),
    gamma_parameters(polished), list(prior = unname(polished@prior)), posteriors(polished),
    list(first_step = first_step, maximum = best), em_gamma(data, formula, labels, k)
  )
}

own_gamma <- list(
  small_intercept = flexmix_gamma(small, gamma ~ 1, "small"),
  small_binary = flexmix_gamma(small, gamma ~ x2, "small")
)

# ---------------------------------------------------------------- out

sums <- lapply(simulated, checksums)
tables <- list(small = small, small_gated = gated, single = single)
table_sums <- lapply(tables, function(table) lapply(table, checksums))
version <- function(package) as.character(packageVersion(package))
versions <- list(R = R.version.string, flexmix = version("flexmix"), nnet = version("nnet"),
  MASS = version("MASS"), numDeriv = version("numDeriv"))
values <- list(
  versions = versions, control = CONTROL, start = list(own = 0.9, other = 0.1),
  simulated_checksums = sums, cases = cases, table_checksums = table_sums, regressions = regressions,
  flexmix_gamma = own_gamma
)
json <- toJSON(values, digits = NA, auto_unbox = TRUE, null = "null")
# One field a line: readable differences.
json <- gsub('("[A-Za-z_0-9.]+":\\{)', "\n\\1", json)
json <- gsub(',("[A-Za-z_0-9.]+":)', ",\n\\1", json)
writeLines(json, arguments[3])
