// Package board shows a cluster as one web page: zones with their nodes, policies and workloads with their skew and
// caps, what is held, what the loss of a zone would do, gangs and pods that wait, and what the scheduler says of them.
//
// # Contract
//
// [Build] turns a census into a [Page], the view model. A page stays below two megabytes whatever the size of the
// cluster: what is left out is counted. [Page.HTML] writes it as one document that loads nothing, [Page.WriteFile] into
// a file. A [Server] shows the pages of a [Source] to browsers that know its token, and sends them changes at most
// twice a second.
//
// The page works without its script, which adds the updates and the arrow keys. Names and messages come from the
// cluster and are escaped by html/template; the Content-Security-Policy admits only the page's own script and
// style, by their digests.
//
// # Non-goals
//
// The board runs no scheduler: a card names the command that does. It changes nothing in the cluster, has no user
// accounts, and cannot be reached from other machines.
package board
