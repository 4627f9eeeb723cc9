// Command zonewise is the user's command line beside the scheduler.
//
// Each command is a file of its own with a constructor that root.go lists.
// A command's work is done by a package below this one; here are its flags,
// their validation and what goes to which stream: results to standard output,
// progress and errors to standard error. The exit codes of all commands are in
// exit.go.
package main
