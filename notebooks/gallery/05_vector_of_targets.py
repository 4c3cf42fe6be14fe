"""A vector of targets: one call of fit, one prediction for each target."""

import pandas as pd
from sklearn.datasets import load_linnerud

import ppgp
from ppgp import data, inference, models

frame = pd.concat(load_linnerud(as_frame=True, return_X_y=True), axis=1)
outputs = data.Outputs.from_frame(frame, ["Weight", "Waist", "Pulse"])
fit = ppgp.fit(models.Multi(models.GP()), outputs, inference.MAP(), progress=False)
predictions = fit.predict(frame)
print({name: prediction.interval(0.9).width.mean() for name, prediction in predictions.items()})
assert list(predictions) == ["Weight", "Waist", "Pulse"]
