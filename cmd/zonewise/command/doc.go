// Package command is the command line for users of the scheduler.
//
// Each command has its own file with a constructor that root.go lists. The files have the flags and their validation,
// and write results to standard output, progress and errors to standard error. Packages beside this one do the work.
package command
