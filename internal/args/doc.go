// Package args decodes the arguments that a KubeSchedulerConfiguration gives to a plugin.
//
// A scheduler that accepts a misspelt argument would run with an unwanted default. So decoding is
// strict, and an error is one line that names the plugin and the field. The plugin sets defaults in the
// struct before Decode, validates the result, and formats errors with [Invalid].
package args
