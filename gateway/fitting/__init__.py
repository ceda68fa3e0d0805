"""From a change and its labelled batch to a model: the job, the fit, the worker that runs it."""
