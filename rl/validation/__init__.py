"""Validation: is this the work that was leased, done with the policy that was claimed?"""
