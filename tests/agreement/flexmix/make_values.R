# Reference values of R flexmix, for the agreement tests.
#
#   python simulate.py simulated.csv
#   Rscript make_values.R DIRECTORY simulated.csv values.json
#
# DIRECTORY holds classic_mixtures/{tonedata,NPreg,betablocker,seizure,patent}.csv. Packages: flexmix, nnet, jsonlite.
# Every fit starts from stored labels, so the library can be started from the very same posteriors. A gate reads the
# columns of the experts, as in the library. README.md explains the fields.

suppressPackageStartupMessages({
  library(flexmix)
  library(nnet)
  library(jsonlite)
})

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) != 3) stop("usage: Rscript make_values.R DIRECTORY simulated.csv values.json")
classic <- function(name) read.csv(file.path(arguments[1], "classic_mixtures", paste0(name, ".csv")))

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

# ---------------------------------------------------------------- one fit and what is kept of it

components <- function(fit) {
  coefficients <- t(sapply(fit@components, function(component) component[[1]]@parameters$coef))
  sigma <- unlist(lapply(fit@components, function(component) component[[1]]@parameters$sigma))
  gate <- if (length(fit@concomitant@coef) && is(fit@concomitant, "FLXPmultinom")) t(unname(fit@concomitant@coef))
  list(coefficients = unname(coefficients), sigma = unname(sigma), prior = unname(fit@prior), gate = gate)
}

stopped <- function(fit) list(iterations = fit@iter, converged = fit@converged, loglik = fit@logLik)

without_null <- function(values) {
  kept <- values[!vapply(values, is.null, logical(1))]
  lapply(kept, function(value) if (is.list(value)) without_null(value) else value)
}

# Maximum of the likelihood itself, by BFGS from flexmix's fit, and standard errors by its numerical Hessian.
maximum <- function(fit) {
  refitted <- refit(fit, optim_control = list(reltol = 1e-16, maxit = 2000))
  theta <- refitted@coef
  se <- sqrt(diag(refitted@vcov))
  part <- function(values, pattern, rows) {
    found <- grepl(pattern, names(theta))
    if (any(found)) matrix(unname(values[found]), nrow = rows, byrow = TRUE)
  }
  split <- function(values) list(
    coefficients = part(values, "_coef\\.", fit@k),
    log_sigma = as.vector(part(values, "log\\(sigma\\)", fit@k)),
    gate = part(values, "^concomitant", fit@k - 1)
  )
  loglik <- flexmix:::FLXlogLikfun(fit)(theta)
  list(maximum = c(list(loglik = as.numeric(loglik)), split(theta)), standard_errors = split(se))
}

fit_case <- function(data, formula, k, labels, family, gate = NULL, offset = NULL, n_groups = NULL, about) {
  run <- function(start, control, concomitant) {
    model <- FLXMRglm(family = family, offset = offset)
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
  values <- c(about, values, components(polished), tryCatch(maximum(polished), error = function(e) list()))
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

simulated <- read.csv(arguments[2])
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

# ---------------------------------------------------------------- out

sums <- lapply(simulated, function(v) c(sum(v), sum(v^2), sum(seq_along(v) / length(v) * v)))
version <- function(package) as.character(packageVersion(package))
versions <- list(R = R.version.string, flexmix = version("flexmix"), nnet = version("nnet"))
values <- list(
  versions = versions, control = CONTROL, start = list(own = 0.9, other = 0.1),
  simulated_checksums = sums, cases = cases
)
json <- toJSON(values, digits = NA, auto_unbox = TRUE, null = "null")
# One field a line: readable differences.
json <- gsub('("[A-Za-z_0-9.]+":\\{)', "\n\\1", json)
json <- gsub(',("[A-Za-z_0-9.]+":)', ",\n\\1", json)
writeLines(json, arguments[3])
