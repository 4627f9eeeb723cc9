package e2e

// listed are the specs that pass with neither scheduler where kwok plays the kubelets, each with its reason. What is
// listed must not pass, and nothing else may fail.
var listed = map[string]string{}
