"""What tests share: real servers on free ports, builders of events, and a fake model server that can fail."""
