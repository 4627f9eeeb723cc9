// Package site tests the documents as a site, which "make site" builds: that every link and anchor leads somewhere.
package site
