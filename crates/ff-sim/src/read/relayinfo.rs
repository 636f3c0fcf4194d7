//! tornettools' relayinfo JSON.
