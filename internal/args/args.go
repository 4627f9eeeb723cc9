package args

import (
	encodingjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decode reads a plugin's pluginConfig args into its last argument, which the caller has filled with
// defaults: a field that the args do not name keeps its default.
//
// A nil object, and an object without content, leave into as it is. The framework hands an
// out-of-tree plugin its args as *runtime.Unknown holding JSON or YAML; that is decoded strictly, so
// that an unknown or repeated field and a value of the wrong type are errors. A caller that builds the
// framework itself may pass the args struct: any object that is a *T is copied.
//
// apiVersion and kind may be set, since KubeSchedulerConfiguration has them in the args of in-tree
// plugins; T should embed metav1.TypeMeta for that reason.
//
// Every error is one line that names the plugin and the field.
func Decode[T any](plugin string, obj runtime.Object, into *T) error {
	if obj == nil {
		return nil
	}
	if typed, ok := any(obj).(*T); ok {
		if typed != nil {
			*into = *typed
		}
		return nil
	}
	unknown, ok := obj.(*runtime.Unknown)
	if !ok {
		return fmt.Errorf("plugin %s: args: want a mapping, got an object of type %T", plugin, obj)
	}
	switch unknown.ContentType {
	case "", runtime.ContentTypeJSON, runtime.ContentTypeYAML:
	default:
		return fmt.Errorf(
			"plugin %s: args: unsupported content type %q, want JSON or YAML", plugin, unknown.ContentType,
		)
	}
	if len(unknown.Raw) == 0 {
		return nil
	}
	raw, err := yaml.YAMLToJSONStrict(unknown.Raw)
	if err != nil {
		return fmt.Errorf("plugin %s: args: %s", plugin, oneLine(err))
	}
	// sigs.k8s.io/json is case-sensitive and names the whole path of an unknown field.
	unknownFields, err := json.UnmarshalStrict(raw, into)
	if err != nil && !strings.Contains(err.Error(), "Go struct field") {
		// A type that decodes itself, such as a duration, does not know its field's name.
		if named := nameField[T](raw); named != nil {
			err = named
		}
	}
	if err = errors.Join(append(unknownFields, err)...); err != nil {
		return fmt.Errorf("plugin %s: args: %s", plugin, oneLine(err))
	}
	return nil
}

// nameField finds the field of a document that does not decode into a T: it tries the fields one by one, then the
// fields of the one that fails, and so on. It returns nil if the document as a whole does not decode.
func nameField[T any](raw []byte) error {
	document := mapping(raw)
	decode := func(document any) error {
		raw, err := encodingjson.Marshal(document)
		if err != nil {
			return err
		}
		return json.UnmarshalCaseSensitivePreserveInts(raw, new(T))
	}
	// within searches value, which around places into a document without other fields.
	var within func(path *field.Path, value any, around func(any) any) error
	within = func(path *field.Path, value any, around func(any) any) error {
		err := decode(around(value))
		if err == nil {
			return nil
		}
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if named := within(path.Child(key), v[key], func(part any) any {
					return around(map[string]any{key: part})
				}); named != nil {
					return named
				}
			}
		case []any:
			for i := range v {
				if named := within(path.Index(i), v[i], func(part any) any {
					return around([]any{part})
				}); named != nil {
					return named
				}
			}
		}
		if path == nil {
			return nil
		}
		return field.Invalid(path, value, oneLine(err))
	}
	if document == nil {
		return nil
	}
	return within(nil, document, func(whole any) any { return whole })
}

// mapping reads a document; it returns nil if the document is not a mapping.
func mapping(raw []byte) (document map[string]any) {
	if json.UnmarshalCaseSensitivePreserveInts(raw, &document) != nil {
		document = nil
	}
	return document
}

// Invalid turns the errors of a validation into one line that names the plugin and every field, or
// nil when there are none.
func Invalid(plugin string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	msgs := make([]string, 0, len(errs))
	for _, err := range errs {
		msgs = append(msgs, err.Error())
	}
	return fmt.Errorf("plugin %s: invalid args: %s", plugin, strings.Join(msgs, "; "))
}

// oneLine removes what the YAML and JSON decoders say about themselves, and keeps what they say about
// the input.
func oneLine(err error) string {
	msg := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	msg = strings.Join(strings.Fields(msg), " ")
	for _, noise := range []string{
		"error unmarshaling JSON: ", "while decoding JSON: ", "error converting YAML to JSON: ",
		"yaml: unmarshal errors:; ", "json: ",
	} {
		msg = strings.ReplaceAll(msg, noise, "")
	}
	return msg
}
