# One flexmix fit of a softmax-gated mixture of Gaussian experts, timed.
#
#   Rscript flexmix_speed.R FILE N D [K]
#
# FILE holds little-endian doubles: X column by column (N * D), then y (N), then the start labels 1..K (N), as written by
# numpy.concatenate([X.T.ravel(), y, labels + 1]).astype("<f8").tofile(FILE). K is 4 unless given. The tolerance is
# flexmix's own, 1e-6 relative, and so is the gate solver. Prints one JSON object; cpu_seconds (user + system) and
# wall_seconds are those of the fit alone, without reading the data.

suppressPackageStartupMessages(library(flexmix))

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) < 3) stop("usage: Rscript flexmix_speed.R FILE N D [K]")
n <- as.integer(arguments[2])
d <- as.integer(arguments[3])
k <- if (length(arguments) > 3) as.integer(arguments[4]) else 4L

file <- file(arguments[1], "rb")
values <- readBin(file, "double", n = n * (d + 2), endian = "little")
close(file)
if (length(values) != n * (d + 2)) stop("the file holds fewer than N * (D + 2) doubles")
data <- data.frame(matrix(values[seq_len(n * d)], n, d), y = values[n * d + seq_len(n)])
labels <- as.integer(values[n * (d + 1) + seq_len(n)])
rm(values)

experts <- reformulate(setdiff(names(data), "y"), "y")
gate <- reformulate(setdiff(names(data), "y"))
before <- proc.time()
fit <- flexmix(experts, data = data, k = k, cluster = labels, model = FLXMRglm(), concomitant = FLXPmultinom(gate))
spent <- proc.time() - before

fields <- list(
  flexmix = sprintf('"%s"', packageVersion("flexmix")), n = n, d = d, k = k, k_left = fit@k,
  cpu_seconds = sprintf("%.3f", spent[["user.self"]] + spent[["sys.self"]]),
  wall_seconds = sprintf("%.3f", spent[["elapsed"]]),
  iterations = fit@iter, converged = if (fit@converged) "true" else "false", loglik = sprintf("%.12g", fit@logLik)
)
cat("{", paste0('"', names(fields), '": ', fields, collapse = ", "), "}\n", sep = "")
