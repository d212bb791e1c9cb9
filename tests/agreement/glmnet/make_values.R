# Writes values.json: lasso paths by glmnet of one normal and one Poisson regression, on the example data of glmnet.
#
#     Rscript make_values.R values.json

library(glmnet)
library(jsonlite)

lasso <- function(example, family, places) {
  x <- round(head(example$x, 200), 2)
  y <- round(as.numeric(head(example$y, 200)), 2)
  fit <- glmnet(x, y, family = family, thresh = 1e-20, maxit = 1e7)
  at <- fit$lambda[places]
  coefficients <- as.matrix(coef(fit))[, places]
  # with slopes in units of the standard deviation, the variance is the mean squared residual and the penalty
  sizes <- colSums(abs(coefficients[-1, ]) * sqrt(colMeans(scale(x, scale = FALSE)^2)))
  squares <- colMeans((y - cbind(1, x) %*% coefficients)^2)
  scale <- if (family == "gaussian") sqrt(squares + at * sizes) else 1
  list(X = unname(x), y = y, strengths = at / scale, coefficients = unname(t(coefficients)))
}

data(QuickStartExample)
data(PoissonExample)
values <- list(
  versions = list(R = R.version.string, glmnet = as.character(packageVersion("glmnet"))),
  gaussian = lasso(QuickStartExample, "gaussian", c(5, 15, 30, 45)),
  poisson = lasso(PoissonExample, "poisson", c(5, 15, 30, 45))
)
writeLines(toJSON(values, digits = NA, auto_unbox = TRUE), commandArgs(TRUE)[1])
