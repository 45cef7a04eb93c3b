package dialect

import (
	"net/http"

	"github.com/muster-dev/muster"
)

// HTTPStatus is the HTTP status by which gateways answer with an error: 500 for one without a code. It differs from that of Muster's
// own API where programs of other systems act on few: what may have been done is 503, as they repeat that.
func HTTPStatus(err error) int {
	switch muster.CodeOf(err) {
	case muster.Invalid, muster.InvalidSpec:
		return http.StatusBadRequest
	case muster.Unauthenticated:
		return http.StatusUnauthorized
	case muster.Forbidden:
		return http.StatusForbidden
	case muster.NotFound:
		return http.StatusNotFound
	case muster.Conflict:
		return http.StatusConflict
	case muster.TooLarge:
		return http.StatusRequestEntityTooLarge
	case muster.Unavailable, muster.Undetermined:
		return http.StatusServiceUnavailable
	case muster.StorageFull:
		return http.StatusInsufficientStorage
	case muster.Internal:
	}
	return http.StatusInternalServerError
}
