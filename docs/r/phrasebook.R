# The R side of docs/for-r-users.rst: each part is shown there, and tests/agreement/test_phrasebook.py compares the
# numbers that the last part writes with those of the Python side.

# -- read
library(flexmix)
visits <- read.csv("visits.csv", stringsAsFactors = TRUE)

# -- fit
set.seed(1)
m <- flexmix(y ~ x + arm, data = visits, k = 2)
summary(m)
parameters(m)
prior(m)
c(logLik(m), AIC(m), BIC(m), ICL(m))

# -- families
counts <- flexmix(count ~ x, data = visits, k = 2,
                  model = FLXMRglm(family = "poisson", offset = log(visits$years)))
shares <- flexmix(cbind(hits, tries - hits) ~ x, data = visits, k = 2,
                  model = FLXMRglm(family = "binomial"))

# -- gate
gated <- flexmix(y ~ x, data = visits, k = 2, concomitant = FLXPmultinom(~ z))
parameters(gated, which = "concomitant")

# -- groups
grouped <- flexmix(y ~ x | id, data = visits, k = 2)

# -- orders
orders <- stepFlexmix(y ~ x, data = visits, k = 1:3, nrep = 3, verbose = FALSE)
best <- getModel(orders, which = "BIC")

# -- errors
summary(refit(m))

# -- posterior
tau <- posterior(m)
label <- clusters(m)
plot(m)

# -- predict
new <- data.frame(x = c(-1, 0, 1), z = c(-1, 0, 1))
predict(gated, newdata = new)
predict(gated, newdata = new, aggregate = TRUE)

# -- relabel
by_slope <- relabel(m, by = "model", which = "coef.x")

# -- save
saveRDS(m, "m.rds")

# -- shared
alike <- flexmix(y ~ x, data = visits, k = 2, model = FLXMRglmfix(fixed = ~ arm, varFix = TRUE))

# -- numbers
slopes_first <- function(fit) order(parameters(fit)["coef.x", ])
numbers <- function(name, fit) {
  by <- slopes_first(fit)
  values <- c(parameters(fit)[, by])
  labels <- paste(rep(rownames(parameters(fit)), 2), rep(0:1, each = nrow(parameters(fit))))
  found <- c(values, logLik(fit), AIC(fit), BIC(fit), ICL(fit), prior(fit)[by])
  data.frame(fit = name, name = c(labels, "loglik", "aic", "bic", "icl", "prior 0", "prior 1"), value = found)
}
refitted <- refit(m)
errors <- sqrt(diag(refitted@vcov))
concomitant <- parameters(gated, which = "concomitant")[, slopes_first(gated)]
more <- data.frame(
  fit = c(rep("errors", length(errors)), rep("gate", 2), rep("predicted", 3), rep("posterior", 3), "orders",
          rep("component", 2)),
  name = c(names(errors), rownames(concomitant), "0", "1", "2", "0", "1", "2", "best", "0", "1"),
  value = c(errors, concomitant[, 2] - concomitant[, 1],
            predict(gated, newdata = new, aggregate = TRUE)[[1]], tau[1:3, slopes_first(m)[1]], best@k,
            slopes_first(m))
)
fits <- list(m = m, alike = alike, counts = counts, shares = shares, gated = gated, grouped = grouped)
table <- do.call(rbind, c(Map(numbers, names(fits), fits), list(more)))
write.csv(table, "numbers.csv", row.names = FALSE)
