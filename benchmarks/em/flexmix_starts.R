# The best of several flexmix fits of a mixture of regressions from random starts.
#
#   Rscript flexmix_starts.R FILE N D K FAMILY GATE SEED
#
# FILE holds little-endian doubles: X column by column (N * D), then y (N), then the exposure (N). FAMILY is gaussian or
# poisson, GATE constant or softmax. initFlexmix fits with its own defaults, three starts each, except that no component
# is dropped for a small share. Prints one JSON object, with the rows of each component (sums of posteriors) and, of
# gaussian ones, the standard deviations; loglik is null if no fit ended.

suppressPackageStartupMessages(library(flexmix))

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) != 7) stop("usage: Rscript flexmix_starts.R FILE N D K FAMILY GATE SEED")
n <- as.integer(arguments[2])
d <- as.integer(arguments[3])
k <- as.integer(arguments[4])

file <- file(arguments[1], "rb")
values <- readBin(file, "double", n = n * (d + 2), endian = "little")
close(file)
data <- data.frame(matrix(values[seq_len(n * d)], n, d), y = values[n * d + seq_len(n)])
exposure <- values[n * (d + 1) + seq_len(n)]
covariates <- setdiff(names(data), "y")

model <- if (arguments[5] == "poisson") FLXMRglm(family = "poisson", offset = log(exposure)) else FLXMRglm()
gate <- if (arguments[6] == "softmax") FLXPmultinom(reformulate(covariates)) else FLXPconstant()
set.seed(as.integer(arguments[7]))
before <- proc.time()
fit <- tryCatch(
  initFlexmix(
    reformulate(covariates, "y"), data = data, k = k, model = model, concomitant = gate, verbose = FALSE,
    control = list(minprior = 0)
  ),
  error = function(problem) NULL
)
spent <- proc.time() - before
in_list <- function(values) sprintf("[%s]", paste(sprintf("%.6g", values), collapse = ", "))

fields <- list(
  flexmix = sprintf('"%s"', packageVersion("flexmix")),
  loglik = if (is.null(fit)) "null" else sprintf("%.12g", fit@logLik),
  rows = if (is.null(fit)) "[]" else in_list(colSums(posterior(fit))),
  sigma = if (is.null(fit) || arguments[5] != "gaussian") "[]" else in_list(parameters(fit)["sigma", ]),
  cpu_seconds = sprintf("%.3f", spent[["user.self"]] + spent[["sys.self"]])
)
cat("{", paste0('"', names(fields), '": ', fields, collapse = ", "), "}\n", sep = "")
