// Package docs reads the project's own documentation, for the tests that hold it to what it says: which documents there are,
// their fenced blocks, and the commands in them.
//
// It knows as much of Markdown as the documents use: fences of three backticks, at the margin or indented in a list, and
// headings with #. What it does not understand is an error, so that no command slips through.
package docs
