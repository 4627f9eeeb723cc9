package main

import (
	"errors"
	"regexp"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/internal/message"
)

// configError is a failure to read or decode the file that --config names.
type configError struct{ err error }

func (e configError) Error() string { return e.err.Error() }
func (e configError) Unwrap() error { return e.err }

// clientError is a failure to make a client for the API server.
type clientError struct{ err error }

func (e clientError) Error() string { return "no client for the API server: " + e.err.Error() }
func (e clientError) Unwrap() error { return e.err }

// remedies says what to do about an error whose text contains a fragment. Upstream turns most errors into
// text, so there is nothing else to compare. An error that no fragment matches is reported as it is. The
// first match counts.
var remedies = []struct{ fragment, remedy string }{
	{"unknown field", "correct its spelling or remove it"},
	{"already set in map", "keep one of the two"},
	{"is registered for version", "write apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration"},
	{"Object 'Kind' is missing", "write apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration"},
	{"couldn't get version/kind", "it must be a KubeSchedulerConfiguration in YAML or JSON"},
	{"yaml: line", "it must be a KubeSchedulerConfiguration in YAML or JSON"},
	{"no such file", "give --config the path of a KubeSchedulerConfiguration"},
	{"\" does not exist", "correct the plugin's name: Zonewise adds ZoneSpread, ReserveCache and PermitGate to upstream's"},
	{"address already in use", "stop the process that has the port, or choose another one with --secure-port"},
	{"permission denied", "run as a user with the permission, or choose another path or port"},
	{"unrecognized feature gate", "correct its spelling in --feature-gates or remove it"},
	{"does not take any arguments", "everything is given by flags"},
	{"lost lease", "another scheduler has taken over, or the API server was not reached in time"},
}

// noise matches words of upstream about its own decoders and calls, which do not help the user.
var noise = strings.NewReplacer(
	"strict decoding error: ", "",
	"yaml: unmarshal errors: ", "",
	"initializing profiles: ", "",
	"creating profile for scheduler name ", "profile ",
	"invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable", "not in a pod, and no kubeconfig is named",
)

// pluginTwice matches the name of a plugin that the framework and the plugin both put before an error.
var pluginTwice = regexp.MustCompile(`initializing plugin "([^"]+)": (plugin \w+: )?`)

// explain turns the error that ends the process into one line: what is wrong, in which file, and what
// to do about it.
func explain(err error, configFile string) string {
	line := noise.Replace(message.OneLine(err))
	line = pluginTwice.ReplaceAllString(line, "plugin $1: ")
	if _, ok := errors.AsType[clientError](err); ok {
		if configFile != "" {
			return line + "; set clientConnection.kubeconfig in " + configFile + " (with --config, --kubeconfig is ignored)"
		}
		return line + "; name a kubeconfig with --kubeconfig, or the server's address with --master"
	}
	if configFile != "" && aboutConfig(err) {
		line = "config " + configFile + ": " + strings.TrimPrefix(line, "open "+configFile+": ")
	}
	for _, r := range remedies {
		if strings.Contains(line, r.fragment) {
			return line + "; " + r.remedy
		}
	}
	return line
}

// aboutConfig reports whether the contents of the file that --config names caused the error.
func aboutConfig(err error) bool {
	if _, ok := errors.AsType[configError](err); ok {
		return true
	}
	// Fields are validated in the configuration alone; flags have checks of another type.
	if invalid, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		for _, e := range invalid.Errors() {
			if _, ok := errors.AsType[*field.Error](e); ok {
				return true
			}
		}
	}
	// The framework reads plugin names and passes args to plugins when it builds the profiles.
	return strings.HasPrefix(err.Error(), "initializing profiles: ")
}
