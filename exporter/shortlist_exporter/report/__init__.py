"""The report of a bundle: figures by the service's own runtime, their pictures, and a page that needs nothing else."""
