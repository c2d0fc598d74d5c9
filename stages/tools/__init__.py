"""Commands that work on any model: inspect, init, quantize, accelerate."""
