# The C++ tests that tools/test leaves to `tools/test --rest`, by program, as filters of GoogleTest.
# All others run in the fast tier. Python tests say it with the marker `slow`.
