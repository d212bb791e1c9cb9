# Writes values.json: maximum likelihood by pscl's hurdle of Poisson counts whose zeros have one chance, on bioChemists.
#
#     Rscript make_values.R values.json

library(pscl)
library(jsonlite)

fit <- hurdle(art ~ fem + mar + kid5 + phd + ment | 1, data = bioChemists, dist = "poisson",
  control = hurdle.control(reltol = 1e-16, maxit = 10000))
values <- list(
  versions = list(R = R.version.string, pscl = as.character(packageVersion("pscl"))),
  X = unname(model.matrix(fit, model = "count")[, -1]), y = bioChemists$art,
  coefficients = unname(coef(fit, "count")), zero_intercept = unname(coef(fit, "zero")), loglik = fit$loglik,
  standard_errors = unname(sqrt(diag(vcov(fit, "count")))), fitted = unname(fitted(fit)[1:10])
)
writeLines(toJSON(values, digits = NA, auto_unbox = TRUE), commandArgs(TRUE)[1])
