// Read by the test layout.refuses, never compiled.
