"""What every test here may use."""

pytest_plugins = ["pytester"]
