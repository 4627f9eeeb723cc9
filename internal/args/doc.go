// Package args decodes the arguments that a KubeSchedulerConfiguration gives to a plugin.
//
// A scheduler that starts with a misspelt argument runs for months with a default that nobody chose.
// Decoding is therefore strict, and an error says in one line which plugin and which field it is about.
// Defaulting is done by filling the struct before Decode, validation by the plugin, with [Invalid] to
// word the result.
package args
