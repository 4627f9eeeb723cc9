package upstream

// differences are the tests that pass without PermitGate and fail with it, by suite and name, each with the reason why
// that is meant. upstreams are those that fail without it, too. What is listed must fail in this way, and nothing else
// may fail.
var differences, upstreams map[string]map[string]string
