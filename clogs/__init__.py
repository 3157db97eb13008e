"""Systems that live on Ocean, each a folder with its clogs. They import Ocean's public names and nothing else."""
