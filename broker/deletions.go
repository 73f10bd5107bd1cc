package broker

import "sekali/store"

// endDeletions goes on with deletions of topics that a crash or a fault cut short; their names stay taken until it
// succeeds. told remembers which failures were said, so that a disk that stays broken costs one line a topic.
// Housekeeping only.
func (s *Server) endDeletions(told map[store.TopicID]bool) {
	for _, t := range s.store.Interrupted() {
		err := s.store.DeleteTopic(t.ID, s.engine.BeforeDelete)
		switch {
		case err == nil:
			delete(told, t.ID)
			s.log.Info("deletion of a topic brought to its end", "topic", t.Name)
		case !told[t.ID]:
			told[t.ID] = true
			s.log.Error("deletion of a topic failed, tried again every second", "topic", t.Name, "err", err)
		}
	}
}
