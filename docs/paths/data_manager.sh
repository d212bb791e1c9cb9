# The study that the coordinator sent, and the export of this hospital: both are taken from the demonstration here.
consilience demo hospitals --no-input > demonstration.txt
cp hospitals/study.toml hospitals/ash.parquet .

# The data manager makes a folder for the site, holds the table against the study, and fits. Nothing leaves.
consilience site init ash
consilience site check ash study.toml ash.parquet
consilience site fit ash study.toml ash.parquet

# The privacy officer reads the annex, which says in sentences what would leave and which limits hold, and signs it.
consilience site annex ash study.toml -o annex.html

# Together they look at what would leave, and answer the question at its end. ash.json is what the data manager sends.
echo y | consilience site release ash -o ash.json --by "privacy officer"
consilience site log show ash
