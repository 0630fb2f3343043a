// As much of Apple's Foundation as the Metal backend uses, declared only: so that clang checks the backend's types for
// macOS without Apple's headers.

#pragma once

#include <objc/objc.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;

typedef struct {
  unsigned long state;
  id* items;
  unsigned long* mutations;
  unsigned long extra[5];
} NSFastEnumerationState;

@protocol NSObject
- (id)retain;
- (oneway void)release;
- (id)autorelease;
- (BOOL)respondsToSelector:(SEL)selector;
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject>
+ (id)alloc;
- (id)init;
@end

@interface NSString : NSObject
+ (id)stringWithUTF8String:(const char*)text;
- (const char*)UTF8String;
@end

@interface NSArray : NSObject
+ (id)arrayWithObject:(id)object;
- (NSUInteger)count;
- (id)objectAtIndex:(NSUInteger)index;
@end

@interface NSDictionary : NSObject
@end

@interface NSMutableDictionary : NSDictionary
+ (id)dictionary;
- (void)setObject:(id)object forKey:(id)key;
@end

@interface NSError : NSObject
+ (id)errorWithDomain:(NSString*)domain code:(NSInteger)code userInfo:(NSDictionary*)info;
- (NSString*)localizedDescription;
@end

@interface NSURL : NSObject
+ (id)fileURLWithPath:(NSString*)path;
@end

@interface NSFileManager : NSObject
+ (NSFileManager*)defaultManager;
- (BOOL)fileExistsAtPath:(NSString*)path;
@end

extern "C" Class NSClassFromString(NSString* name);
