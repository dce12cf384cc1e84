"""The trainer: rollout groups in, optimiser steps, checkpoints and weight versions out."""
