"""From measurements to explanation, prediction and advice; knows neither pytest nor llama.cpp."""
