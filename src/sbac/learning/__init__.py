"""`sbac learn`: from a log to a policy and an answer in plain words, within the minutes that there are."""
