package upstream

// differences are the tests that pass without PermitGate and are expected to fail with it, by suite and name, each with its reason.
var differences = map[string]map[string]string{}
