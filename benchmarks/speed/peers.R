# Whole fits by R's mclust and flexmix of one table, timed.
#
#   Rscript peers.R FILE N D K PROGRAM SEED
#
# FILE holds little-endian doubles: X column by column (N * D), then y (N). PROGRAM is mclust (a Gaussian mixture of X with
# full covariances), flexmix (a mixture of regressions of y on X) or flexmix-gate (the same with FLXPmultinom). Both run
# with the search that their pages propose: Mclust starts from model-based hierarchical clustering, initFlexmix takes the
# best of three starts, and here no component is dropped for a small share. Prints one JSON object; loglik is null if no fit
# ended. cpu_seconds (user + system) are those of the fit alone.

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) != 6) stop("usage: Rscript peers.R FILE N D K PROGRAM SEED")
n <- as.integer(arguments[2])
d <- as.integer(arguments[3])
k <- as.integer(arguments[4])
program <- arguments[5]
suppressPackageStartupMessages(library(sub("-gate", "", program), character.only = TRUE))

file <- file(arguments[1], "rb")
values <- readBin(file, "double", n = n * (d + 1), endian = "little")
close(file)
X <- matrix(values[seq_len(n * d)], n, d)
data <- data.frame(X, y = values[n * d + seq_len(n)])
covariates <- setdiff(names(data), "y")

fitted <- function() {
  if (program == "mclust") return(Mclust(X, G = k, modelNames = "VVV", verbose = FALSE)$loglik)
  gate <- if (program == "flexmix-gate") FLXPmultinom(reformulate(covariates)) else FLXPconstant()
  initFlexmix(
    reformulate(covariates, "y"), data = data, k = k, concomitant = gate, verbose = FALSE, control = list(minprior = 0)
  )@logLik
}

set.seed(as.integer(arguments[6]))
before <- proc.time()
loglik <- tryCatch(fitted(), error = function(problem) NULL)
spent <- proc.time() - before
cat(sprintf(
  '{"version": "%s", "loglik": %s, "cpu_seconds": %.3f}\n', packageVersion(sub("-gate", "", program)),
  if (is.null(loglik)) "null" else sprintf("%.12g", loglik), spent[["user.self"]] + spent[["sys.self"]]
))
