// Package board looks at the page of "zonewise board" with a browser, headless Chromium, while the command follows a
// real API server with the permissions of manifests/rbac/viewer.
//
// Nothing is skipped: without Chromium the tests fail and say what to install. hack/test.sh installs it. Set
// BOARD_SCREENSHOTS to a directory to keep pictures of the page.
package board
