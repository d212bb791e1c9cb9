# Reference values of R flexmix for coefficients that components share (FLXMRglmfix).
#
#   Rscript make_shared_values.R DIRECTORY shared_values.json
#
# DIRECTORY holds classic_mixtures/{NPreg,betablocker}.csv. Packages: flexmix, numDeriv, jsonlite.
# A fit by flexmix is continued by BFGS and Newton's method on the log-likelihood, written out below for each family, with
# numDeriv's derivatives: `maximum`. README.md explains the fields.

suppressPackageStartupMessages({
  library(flexmix)
  library(numDeriv)
  library(jsonlite)
})

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) != 2) stop("usage: Rscript make_shared_values.R DIRECTORY shared_values.json")
classic <- function(name) read.csv(file.path(arguments[1], "classic_mixtures", paste0(name, ".csv")))
CONTROL <- list(minprior = 0, tolerance = 1e-14, iter.max = 20000)
POLISH <- list(minprior = 0, tolerance = 0, iter.max = 400)

npreg <- classic("NPreg")
betablocker <- classic("betablocker")
betablocker$Treatment <- factor(betablocker$Treatment)

# own, shared: columns of the design of each component; y: responses; size: trials; groups: label of rows
cases <- list(
  npreg_gaussian = list(
    data = npreg, k = 2, y = npreg$yn, family = "gaussian", tied = FALSE, start = npreg$class, groups = seq_len(nrow(npreg)),
    own = cbind(1, npreg$x), shared = cbind(npreg$x^2), columns = c("x", "I(x^2)"),
    fit = function(start, control) flexmix(yn ~ x, data = npreg, cluster = start, control = control,
                                  model = FLXMRglmfix(fixed = ~ 0 + I(x^2)))),
  npreg_gaussian_tied = list(
    data = npreg, k = 2, y = npreg$yn, family = "gaussian", tied = TRUE, start = npreg$class, groups = seq_len(nrow(npreg)),
    own = cbind(1, npreg$x), shared = cbind(npreg$x^2), columns = c("x", "I(x^2)"),
    fit = function(start, control) flexmix(yn ~ x, data = npreg, cluster = start, control = control,
                                  model = FLXMRglmfix(fixed = ~ 0 + I(x^2), varFix = TRUE))),
  npreg_poisson = list(
    data = npreg, k = 2, y = npreg$yp, family = "poisson", tied = FALSE, start = npreg$class, groups = seq_len(nrow(npreg)),
    own = cbind(1, npreg$x), shared = cbind(npreg$x^2), columns = c("x", "I(x^2)"),
    fit = function(start, control) flexmix(yp ~ x, data = npreg, cluster = start, control = control,
                                  model = FLXMRglmfix(fixed = ~ 0 + I(x^2), family = "poisson"))),
  betablocker = list(
    data = betablocker, k = 3, y = betablocker$Deaths, size = betablocker$Total, family = "binomial", tied = FALSE,
    start = NULL, groups = betablocker$Center, own = matrix(1, nrow(betablocker), 1),
    shared = cbind(as.numeric(betablocker$Treatment == "Treated")), columns = "TreatmentTreated",
    fit = function(start, control) flexmix(cbind(Deaths, Total - Deaths) ~ 1 | Center, data = betablocker, cluster = start,
                                  control = control, model = FLXMRglmfix(fixed = ~ Treatment, family = "binomial")))
)

# The log-likelihood in (log odds of the prior, own coefficients by component, shared coefficients, log sigma).
split_theta <- function(case, theta) {
  K <- case$k; p <- ncol(case$own); s <- ncol(case$shared)
  odds <- c(0, theta[seq_len(K - 1)])
  own <- matrix(theta[K - 1 + seq_len(K * p)], K, p, byrow = TRUE)
  shared <- theta[K - 1 + K * p + seq_len(s)]
  sigma <- exp(rep_len(theta[-seq_len(K - 1 + K * p + s)], K))
  list(prior = exp(odds) / sum(exp(odds)), own = own, shared = shared, sigma = sigma)
}
log_likelihood <- function(theta, case) {
  at <- split_theta(case, theta)
  eta <- case$own %*% t(at$own) + drop(case$shared %*% at$shared)
  each <- switch(case$family,
    gaussian = sapply(seq_len(case$k), function(k) dnorm(case$y, eta[, k], at$sigma[k], log = TRUE)),
    poisson = sapply(seq_len(case$k), function(k) dpois(case$y, exp(eta[, k]), log = TRUE)),
    binomial = sapply(seq_len(case$k), function(k) dbinom(case$y, case$size, plogis(eta[, k]), log = TRUE)))
  of_groups <- rowsum(each, case$groups) + rep(log(at$prior), each = length(unique(case$groups)))
  top <- apply(of_groups, 1, max)
  sum(top + log(rowSums(exp(of_groups - top))))
}

read_fit <- function(case, fit) {
  found <- parameters(fit)
  p <- ncol(case$own); s <- ncol(case$shared)
  coefficients <- found[grep("^coef", rownames(found)), , drop = FALSE]
  fixed <- seq_len(s)                      # flexmix states the fixed terms first
  own <- t(coefficients[-fixed, , drop = FALSE])
  intercept <- grep("Intercept", rownames(coefficients)[-fixed])
  own <- own[, c(intercept, setdiff(seq_len(p), intercept)), drop = FALSE]
  sigma <- if (case$family == "gaussian") found["sigma", ] else NULL
  list(prior = prior(fit), own = own, shared = coefficients[fixed, 1], sigma = sigma)
}

ascend <- function(theta, case) {
  control <- list(fnscale = -1, maxit = 10000, reltol = 1e-15)
  gradient <- function(theta, case) grad(log_likelihood, theta, case = case)
  for (climb in 1:3) theta <- optim(theta, log_likelihood, gradient, case = case, method = "BFGS", control = control)$par
  for (step in 1:4) theta <- theta - solve(hessian(log_likelihood, theta, case = case), grad(log_likelihood, theta, case = case))
  theta
}

described <- function(name) {
  case <- cases[[name]]
  if (is.null(case$start)) {
    rate <- with(case$data, tapply(Deaths, Center, sum) / tapply(Total, Center, sum))
    case$start <- as.integer(cut(rank(rate), 3))[case$data$Center]
  }
  fit <- case$fit(case$start, CONTROL)
  fit <- case$fit(posterior(fit), POLISH)  # at 1e-14 it is still on its way
  at <- read_fit(case, fit)
  sigma <- if (case$tied) at$sigma[1] else at$sigma
  theta <- c(log(at$prior[-1] / at$prior[1]), t(at$own), at$shared, if (!is.null(sigma)) log(sigma))
  stopifnot(abs(log_likelihood(theta, case) - as.numeric(logLik(fit))) < 1e-8)
  top <- ascend(theta, case)
  best <- split_theta(case, top)
  rough <- sqrt(diag(solve(-hessian(log_likelihood, top, case = case))))
  around <- function(z) log_likelihood(top + rough * (z - 1), case)  # steps in standard errors, around 1
  curvature <- hessian(around, rep(1, length(top)), method.args = list(d = 0.1, r = 6))
  errors <- rough * sqrt(diag(solve(-curvature)))
  of_own <- matrix(errors[case$k - 1 + seq_along(at$own)], case$k, byrow = TRUE)
  of_shared <- errors[case$k - 1 + length(at$own) + seq_along(at$shared)]
  list(family = case$family, tied = case$tied, k = case$k, columns = case$columns, start = case$start - 1,
       loglik = as.numeric(logLik(fit)), df = fit@df, prior = at$prior, own = at$own, shared = unname(at$shared), sigma = at$sigma,
       maximum = list(loglik = log_likelihood(top, case), gradient = max(abs(grad(log_likelihood, top, case = case))),
                      prior = best$prior, own = best$own, shared = best$shared,
                      sigma = if (case$family == "gaussian") best$sigma else NULL,
                      own_errors = of_own, shared_errors = of_shared))
}

values <- list(versions = list(R = as.character(getRversion()), flexmix = as.character(packageVersion("flexmix"))),
               cases = sapply(names(cases), described, simplify = FALSE))
write(toJSON(values, digits = NA, auto_unbox = TRUE, null = "null", pretty = TRUE), arguments[2])
