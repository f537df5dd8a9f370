"""Match conditions of the chart, and pods that test them."""
