"""Run sparse layers in onnxruntime with a C++ library of custom operators.

- source/: the C++17 library, without dependencies; ops.cpp describes the operators
- library.py: find, build and query the library
- functions.py: the operators as ONNX functions, for runtimes without the library
- cost_model.py: which layers are worth converting
- replace.py: replace nodes of a graph by sparse operators
"""
