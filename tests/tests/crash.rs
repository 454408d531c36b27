//! A process that dies, a disk that is full: who was told "recorded" finds the record, exactly once.

mod crash {
    mod child;
    mod full_disk;
    mod kept;
    mod killed;
}
