package engine

import (
	"context"
	"fmt"

	"sekali/coord"
	"sekali/meta"
	"sekali/store"
)

// pidBlocks reserves blocks of producer ids in the metadata store (coord.PIDs): the one durable counter moves before an
// id of the block is handed out, and after any start the ids go on at the counter. Owner: the Engine's
// coord.ProducerIDs.
type pidBlocks struct{ meta meta.MetadataStore }

var _ coord.PIDs = pidBlocks{}

// Reserve moves the counter by n and returns where it stood; the move is durable before it returns. An outcome that is
// not known (meta.ErrUnknown) is an error: the ids may be reserved, and then stay unused.
func (p pidBlocks) Reserve(n int64) (int64, error) {
	first, err := store.ReservePIDs(context.Background(), p.meta, n)
	if err != nil {
		return 0, fmt.Errorf("engine: reserve %d producer ids: %w", n, err)
	}
	return first, nil
}
