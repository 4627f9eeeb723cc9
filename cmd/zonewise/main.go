package main

import (
	"os"

	"zonewise.dev/cmd/zonewise/command"
)

func main() {
	os.Exit(command.Main(os.Args[1:], nil))
}
