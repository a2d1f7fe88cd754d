"""The scikit-learn face: plain and private estimators, their parameters and labels."""
