package sim

// StopTime is stopTime.
const StopTime = stopTime
