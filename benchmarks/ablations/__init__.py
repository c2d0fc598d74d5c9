"""The ablations of the paper on Fashion-MNIST: plans.py lists the runs, __main__.py starts them."""
