"""Sparse kernels for onnxruntime: a library of custom operators, and graphs that use them.

- source/: the library, C++17 without dependencies; ops.cpp says what the operators are
- library.py: where the library is, and how it is built
- functions.py: the operators as functions of standard ones, for where the library is not registered
- turn_over.py: nodes of a graph turned into these operators
"""
