// Command zonewise is the command line for users of the scheduler. Its commands are in package command, so that the
// program of a scheduler with plugins of its own can serve as it, too: see examples/own-plugins.
package main
