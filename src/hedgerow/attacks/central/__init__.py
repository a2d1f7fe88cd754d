"""Audits of trainings on one table: lower bounds on epsilon, canaries, and who was in the training rows.

They train many times, or know more than any party does, so `hedgerow attack` cannot run them on one recorded run.
Tests hold our claims against them; `python -m experiments.central_dp_audit` prints figures.
"""
