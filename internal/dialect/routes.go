package dialect

import "net/http"

// Handler serves a request. An error is the answer.
type Handler func(w http.ResponseWriter, r *http.Request) error

// WithBody returns a Handler for requests with a JSON body of at most maxBytes bytes.
func WithBody[B any](maxBytes int64, handle func(w http.ResponseWriter, r *http.Request, body *B) error) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body B
		if err := Decode(r, maxBytes, &body); err != nil {
			return err
		}
		return handle(w, r, &body)
	}
}

// Reply answers with 200 and a JSON value.
func Reply(w http.ResponseWriter, v any) error {
	WriteJSON(w, http.StatusOK, v)
	return nil
}

// Routes serves requests by their patterns. writeError answers with the error of a handler, and notFound answers all other requests.
func Routes(handlers map[string]Handler, writeError func(w http.ResponseWriter, r *http.Request, err error), notFound http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range handlers {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				writeError(w, r, err)
			}
		})
	}
	mux.HandleFunc("/", notFound)
	return mux
}
