"""The paper's ablations on Fashion-MNIST; see __main__.py for how they are run and plans.py for what is run."""
