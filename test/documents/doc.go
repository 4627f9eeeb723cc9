// Package documents reads the project's documentation for the tests that check it: the documents, their fenced blocks,
// and the commands in them.
//
// It knows the Markdown that the documents use: fences of three backticks, at the margin or indented in a list, and
// headings with #. Anything else is an error, so that no command goes unnoticed.
package documents
