# Writes values.json: maximum likelihood by MASS of one negative binomial regression (glm.nb) and of the location, scale
# and degrees of freedom of Student's t (fitdistr), on data sets of MASS.
#
#     Rscript make_values.R values.json

library(MASS)
library(jsonlite)

tight <- glm.control(epsilon = 1e-14, maxit = 500)

negative_binomial <- function(fit, size = NULL) {
  # glm.nb alternates coefficients and theta and reports expected standard errors of either, given the other
  list(
    X = unname(model.matrix(fit)[, -1]), y = unname(fit$y), exposure = size,
    coefficients = unname(coef(fit)), theta = fit$theta, loglik = fit$twologlik / 2,
    standard_errors = unname(summary(fit)$coefficients[, 2]), theta_error = fit$SE.theta
  )
}

student <- function(y) {
  fit <- fitdistr(y, "t", control = list(reltol = 1e-15, maxit = 5000))
  list(y = y, location = fit$estimate[["m"]], scale = fit$estimate[["s"]], degrees = fit$estimate[["df"]],
    loglik = fit$loglik, location_error = fit$sd[["m"]])
}

quine_fit <- glm.nb(Days ~ Eth + Sex + Age + Lrn, data = quine, control = tight)
# seizures in two weeks, relative to those of the eight weeks before the trial
epil_fit <- glm.nb(y ~ trt + lage + V4 + offset(log(base)), data = epil, control = tight)

values <- list(
  versions = list(R = R.version.string, MASS = as.character(packageVersion("MASS"))),
  quine = negative_binomial(quine_fit),
  epil = negative_binomial(epil_fit, epil$base),
  speed_of_light = student(michelson$Speed / 100),
  newcomb = student(newcomb)
)
writeLines(toJSON(values, digits = NA, auto_unbox = TRUE, null = "null"), commandArgs(TRUE)[1])
